"""Small loops in C that torch has no single operation for, compiled for this very processor when first needed.

Matrix products stay with torch, which is as fast as the processor. What lies between them is not: attention over a
sentence of twenty words is a thousand tiny products, and dropout or the gradient of a softmax reads the same memory
five times. Each function here does one of these in one pass, in the caller's thread, without Python's lock.

There is nothing that only these functions can do: where no compiler is found, `available()` says so and the callers
take the same steps with torch's own operations.
"""
