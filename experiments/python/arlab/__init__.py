"""arlab: compressed collectives. Which bits, and do GPU kernels agree?"""
