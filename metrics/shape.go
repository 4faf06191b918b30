package metrics

import "titan/models/decoder"

// ShapeOf returns what counting FLOPs needs to know of a decoder.
func ShapeOf(c *decoder.Config) ModelShape {
	all, embedding, routed := c.Count()
	s := ModelShape{
		Params: all, Embedding: embedding, Tied: c.TieEmbeddings,
		Layers: c.Layers, Heads: c.Heads, HeadDimQK: c.HeadDim, HeadDimV: c.HeadDim,
	}
	if c.MoE != nil && routed > 0 {
		s.Routed, s.TopK, s.Experts = routed, c.MoE.TopK, c.MoE.Experts
	}
	return s
}
