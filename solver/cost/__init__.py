"""What operators, collectives and tensors cost on a rank: arrays in, arrays out."""
