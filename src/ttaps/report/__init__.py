"""Tables and figures from stored rows and plain arrays; nothing here touches a model."""
