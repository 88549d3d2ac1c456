// Package legible makes what strangers wrote fit to be read, by people and by models: Clean takes out of a text what
// its reader would not see, Hides tells whether there is any of it, and Skeletons tells which names look the same.
// Which characters these are is read from Unicode's tables; docs/decisions/0017-text-of-strangers.md says what stays
// and why.
package legible
