"""The experiments of the paper *Rectified Max-Value Entropy Search*, run and judged anew."""
