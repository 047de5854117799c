"""The outputs of layers that a net keeps for the backward pass, and how to keep fewer."""
