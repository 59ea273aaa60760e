"""One file a layer: the derivation, the forward, the backward."""
