"""One evaluation or comparison as a page to read: one HTML file that needs nothing beside it."""
