//go:build !linux

package compilecache

var processor = features
