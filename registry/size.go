package registry

// lineWeight is about what a line takes in memory beside the texts that differ much in length.
const lineWeight = 512

// MemorySize returns about how many bytes of memory the line takes.
func (a *Activity) MemorySize() int {
	sum := lineWeight + len(a.Reason) + a.Call.MemorySize()
	for _, name := range a.Tools {
		sum += 16 + len(name)
	}
	return sum
}

// MemorySize returns about how many bytes of memory the event takes.
func (e *CallEvent) MemorySize() int { return lineWeight + len(e.Message) + len(e.Chunk) }

// MemorySize returns about how many bytes of memory the record takes with its arguments and result; zero for nil.
func (r *Record) MemorySize() int {
	if r == nil {
		return 0
	}
	sum := lineWeight + len(r.args)
	if r.Result != nil {
		sum += len(r.Result.Output) + r.Result.Structured.Len() + len(r.Result.Error) +
			PartsSize(r.Result.Parts) + ViolationsSize(r.Result.Violations)
	}
	if r.Err != nil {
		sum += len(r.Err.Message) + lineWeight*(len(r.Err.Violations)+len(r.Err.Candidates))
	}
	return sum
}

// promptDigest is the size in bytes from which arguments are digested at once, so that they need not wait in memory.
const promptDigest = 4 << 10

// DigestLongArgs digests arguments that are too long to wait in memory until the record is written.
func (r *Record) DigestLongArgs() {
	if r != nil && len(r.args) > promptDigest {
		r.DigestArgs()
	}
}
