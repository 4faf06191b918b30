package data

// Options returns what the section decides of a loader's options: the sources
// and how document boundaries count. datasetPath is training.dataset_path, the
// only source of a recipe whose [data] names none.
func (c Config) Options(datasetPath string) Options {
	o := Options{ResetPositions: c.ResetPositions, IsolateDocuments: c.IsolateDocuments, MaskBoundaries: c.MaskBoundaries}
	for _, s := range c.Sources {
		o.Sources = append(o.Sources, Source{Prefix: s.Path, Weight: s.Weight})
	}
	if len(o.Sources) == 0 && datasetPath != "" {
		o.Sources = []Source{{Prefix: datasetPath}}
	}
	return o
}
