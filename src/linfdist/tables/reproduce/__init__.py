"""The paper's tables, run again at a chosen scale and shown beside the published numbers."""
