"""Keep working memory: one page of stable facts, in versions."""
