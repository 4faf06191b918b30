// Package optim updates parameters from gradients.
package optim
