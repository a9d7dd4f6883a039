"""Tables, figures and a page from stored rows. No model and no torch is needed."""
