"""From journals to tables, verdicts and reports, with Spark."""
