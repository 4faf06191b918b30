package decoder

// Override changes single dimensions of a flavor from a recipe's
// [model.override]. What is absent stays.
type Override struct {
	VocabSize     *int     `toml:"vocab_size" doc:"size of the vocabulary; at least that of the tokenizer"`
	Dim           *int     `toml:"dim" doc:"width of the residual stream"`
	Layers        *int     `toml:"n_layers" doc:"number of layers"`
	Heads         *int     `toml:"n_heads" doc:"query heads"`
	KVHeads       *int     `toml:"n_kv_heads" doc:"key/value heads; n_heads is a multiple of it"`
	HeadDim       *int     `toml:"head_dim" doc:"width of a head, independent of dim/n_heads"`
	HiddenDim     *int     `toml:"hidden_dim" doc:"inner width of dense feed-forward layers"`
	MaxSeqLen     *int     `toml:"max_seq_len" doc:"longest sequence; recorded in exported config.json"`
	NormEps       *float64 `toml:"norm_eps" doc:"epsilon of RMSNorm"`
	RopeTheta     *float64 `toml:"rope_theta" doc:"base of the rotary embedding"`
	QKNorm        *bool    `toml:"qk_norm" doc:"RMSNorm on queries and keys"`
	TieEmbeddings *bool    `toml:"tie_embeddings" doc:"use the embedding as output layer"`

	Experts       *int     `toml:"n_experts" doc:"experts of a layer"`
	TopK          *int     `toml:"top_k" doc:"experts that a token goes to"`
	MoEHiddenDim  *int     `toml:"moe_hidden_dim" doc:"inner width of an expert"`
	NormTopK      *bool    `toml:"norm_topk_prob" doc:"divide the kept router probabilities by their sum"`
	MLPOnlyLayers *[]int   `toml:"mlp_only_layers" doc:"numbers of layers without experts"`
	SparseStep    *int     `toml:"decoder_sparse_step" doc:"layer i has experts if i+1 is a multiple of it"`
	AuxLossCoef   *float64 `toml:"aux_loss_coef" doc:"weight of the load-balancing loss"`
	ZLossCoef     *float64 `toml:"z_loss_coef" doc:"weight of the router z-loss"`
}

// Apply returns c with what o sets. Keys for experts are ignored by a dense
// model: see Misplaced.
func (o *Override) Apply(c Config) Config {
	set(&c.VocabSize, o.VocabSize)
	set(&c.Dim, o.Dim)
	set(&c.Layers, o.Layers)
	set(&c.Heads, o.Heads)
	set(&c.KVHeads, o.KVHeads)
	set(&c.HeadDim, o.HeadDim)
	set(&c.HiddenDim, o.HiddenDim)
	set(&c.MaxSeqLen, o.MaxSeqLen)
	set(&c.NormEps, o.NormEps)
	set(&c.RopeTheta, o.RopeTheta)
	set(&c.QKNorm, o.QKNorm)
	set(&c.TieEmbeddings, o.TieEmbeddings)
	if c.MoE != nil {
		m := *c.MoE
		set(&m.Experts, o.Experts)
		set(&m.TopK, o.TopK)
		set(&m.HiddenDim, o.MoEHiddenDim)
		set(&m.NormTopK, o.NormTopK)
		set(&m.MLPOnlyLayers, o.MLPOnlyLayers)
		set(&m.SparseStep, o.SparseStep)
		set(&m.AuxLossCoef, o.AuxLossCoef)
		set(&m.ZLossCoef, o.ZLossCoef)
		c.MoE = &m
	}
	return c
}

// Misplaced returns the keys of experts that are set, which a dense model does
// not have.
func (o *Override) Misplaced() []string {
	var keys []string
	for _, k := range []struct {
		name string
		set  bool
	}{
		{"n_experts", o.Experts != nil}, {"top_k", o.TopK != nil}, {"moe_hidden_dim", o.MoEHiddenDim != nil},
		{"norm_topk_prob", o.NormTopK != nil}, {"mlp_only_layers", o.MLPOnlyLayers != nil},
		{"decoder_sparse_step", o.SparseStep != nil}, {"aux_loss_coef", o.AuxLossCoef != nil}, {"z_loss_coef", o.ZLossCoef != nil},
	} {
		if k.set {
			keys = append(keys, k.name)
		}
	}
	return keys
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}
