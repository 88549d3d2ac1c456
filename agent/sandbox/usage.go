package sandbox

// Usage says what a workspace takes.
type Usage struct {
	Bytes int64 // on the disk
	Files int   // folders included
	Free  int64 // bytes that are free on its disk

	Locked bool // a folder of it may not be looked into
}
