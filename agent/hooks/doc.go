// Package hooks has hooks for people who do not write Go: before a call, after it, or both, an operator's own HTTP
// service is asked. It lets the call pass, changes its arguments or its result, or stops it.
//
// Requests are signed by Standard Webhooks (standardwebhooks.com). Answers are read strictly: what is not understood
// whole is a failure. What a failure means is each hook's setting: by default the call is stopped, or its result
// withheld.
package hooks
