"""The paper's tables and figures, one module each, on one shared loop of trials."""
