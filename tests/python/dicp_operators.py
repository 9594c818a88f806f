"""The operators that DICP's own tests are about (its conversion tables of two chips), as entries of PyTorch's operator
database. Those that take complex numbers alone are left out."""

ASCEND = {
    "arithmetic": "add sub rsub mul div.no_rounding_mode div.floor_rounding "
    "neg reciprocal pow sqrt rsqrt exp log sin cos addcmul maximum cumsum",
    "comparison": "eq ne le lt ge gt logical_or logical_not where",
    "activation": "nn.functional.relu nn.functional.gelu nn.functional.silu sigmoid softmax log_softmax "
    "nn.functional.threshold",
    "matrix": "mm bmm addmm t transpose permute",
    "reduction": "sum mean amax var argmax sort topk",
    "shape": "view unsqueeze squeeze expand narrow slice_scatter select select_scatter split cat stack repeat "
    "repeat_interleave",
    "indexing": "__getitem__ index_put index_select gather scatter nn.functional.embedding masked_fill tril triu",
    "creation": "arange full full_like ones new_ones zeros_like empty empty_like new_empty_strided scalar_tensor fill "
    "clone to rand_like bernoulli",
    "network": "nn.functional.conv2d nn.functional.max_pool2d nn.functional.adaptive_avg_pool2d "
    "nn.functional.layer_norm nn.functional.group_norm nn.functional.batch_norm nn.functional.dropout "
    "nn.functional.nll_loss",
    "complex": "view_as_complex",
}
TOPS = {
    "more": "abs square erf argmin nn.functional.hardswish nn.functional.upsample_nearest var_mean float int half "
    "minimum max.binary max.reduction_with_dim min.binary min.reduction_with_dim "
    "clamp prod tanh log2 floor ceil isnan any all linspace flip roll dot flatten chunk",
}
ENTRIES = sorted({name for table in (ASCEND, TOPS) for names in table.values() for name in names.split()})
