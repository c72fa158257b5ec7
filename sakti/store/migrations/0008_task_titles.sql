-- Titles of tasks hold no secrets, neither do those that the history keeps (the function is that of store/migrate.py).
UPDATE tasks SET title = sakti_masked(title) WHERE title != sakti_masked(title);
UPDATE task_events SET before = json_set(before, '$.title', sakti_masked(before ->> '$.title'))
  WHERE json_valid(before) AND before ->> '$.title' != sakti_masked(before ->> '$.title');
UPDATE task_events SET after = json_set(after, '$.title', sakti_masked(after ->> '$.title'))
  WHERE json_valid(after) AND after ->> '$.title' != sakti_masked(after ->> '$.title');
