// Package audit writes the audit log: what was decided about calls and what admins did. Lines are written in batches,
// off the path of what they tell of.
package audit
