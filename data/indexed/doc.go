// Package indexed writes and reads token datasets in the format of
// Megatron-Core's indexed dataset: PREFIX.bin holds the tokens of all documents
// one after the other, PREFIX.idx their lengths and places.
//
//	w, err := indexed.Create("out/code", indexed.DTypeFor(tok.VocabSize()), false)
//	defer w.Abort() // does nothing after Commit
//	err = w.Append(ids)
//	sum, err := w.Finish()
//	err = w.Commit()
//
//	d, err := indexed.Open("out/code")
//	err = d.Read(dst, d.Tokens()-int64(len(dst)))
//
// The index, little-endian: the magic "MMIDIDX" and two zero bytes, u64 version
// 1, u8 type code, u64 number of sequences n, u64 number of document indices
// m+1, i32 lengths[n] in tokens, i64 offsets[n] in bytes, i64 documents[m+1],
// the sequence at which each document starts, then n. Here each document is one
// sequence; the reader takes both.
//
// A dataset exists once its .idx does: Commit renames that last. What is being
// written is called PREFIX.bin.partial and is locked; the next Create for the
// prefix takes over what a killed process left behind.
package indexed
