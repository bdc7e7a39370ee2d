"""Pictures of what was measured, as MLflow logs them: fit for a slide, with the finding as the title."""
