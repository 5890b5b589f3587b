"""The studies made with the model, and the command line."""
