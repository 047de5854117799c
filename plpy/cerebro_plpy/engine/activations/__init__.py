"""What a net keeps of its forward pass for the backward pass, and how to keep less."""
