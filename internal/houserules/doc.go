// Package houserules keeps the rules of the house that a compiler does not:
//
//   - imports of the product point down the table of docs/architecture.md, and
//     folders stay strangers where its last column says so. Packages under
//     internal are below everything, or for tests if their name ends in test;
//   - a Go file that is no test has at most [MaxLines] lines;
//   - no file names a developer's machine or a package registry;
//   - go.mod replaces nothing.
//
// The rules are checked by this package's test.
package houserules
