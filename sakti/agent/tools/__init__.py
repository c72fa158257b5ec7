"""Define the agent's tools, by the names that models know from other agents; `catalog` lists them."""
