// Package legible makes what strangers wrote fit to be read, by people and by models: Clean takes out of a text what
// its reader would not see, CleanSchema does so in the free text of a JSON Schema, Hides tells whether there is any of
// it, and Skeletons and OneScript tell which names look like others. Which characters these are is read from Unicode's
// tables; docs/decisions/0017-text-of-strangers.md says what stays and why.
package legible
