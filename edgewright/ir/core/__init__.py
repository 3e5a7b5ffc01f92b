"""The core dialect: numpy reference implementations of its operators, one module per family; ``execute`` runs them."""
