"""``ttaps serve``: a page that shows one image being adapted, and the HTTP service behind it. docs/serving.md says how to use it."""
