package metrics

// TokensPerSecond is the rate per device of a step (or window) that took
// seconds for tokens in all.
func TokensPerSecond(tokens int, seconds float64, devices int) float64 {
	return float64(tokens) / seconds / float64(devices)
}
