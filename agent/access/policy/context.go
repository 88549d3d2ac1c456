package policy

// Context says who takes part in a conversation.
type Context string

// The contexts. The empty context means Main.
const (
	Main      Context = "main"            // one trusted person
	Group     Context = "group"           // more people than the device's owner
	Sandboxed Context = "group sandboxed" // as before, with its local tools in a sandbox
)

// Contexts returns all contexts.
func Contexts() []Context { return []Context{Main, Group, Sandboxed} }

// Join returns the context of a conversation that two parties say something of: what its channel says, and what the
// credentials of whoever opened it say. Neither can take back what the other says. What is no context counts as Group.
func Join(a, b Context) Context {
	if rank(a) < rank(b) {
		a = b
	}
	switch rank(a) {
	case 0:
		return Main
	case 1:
		return Group
	default:
		return Sandboxed
	}
}

func rank(c Context) int {
	switch c {
	case "", Main:
		return 0
	case Sandboxed:
		return 2
	default:
		return 1
	}
}
