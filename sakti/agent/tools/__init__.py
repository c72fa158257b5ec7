"""The tools of the agent, by the names that models know from other agents. `catalog` lists them."""
