"""Dependences between elements: sparsity patterns of Jacobians and Hessians, and their
colourings."""
