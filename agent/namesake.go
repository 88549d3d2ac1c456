package agent

import "github.com/farhand/farhand/registry/legible"

// Namesakes knows what the names in it look like. The zero value is empty.
type Namesakes struct{ bySkeleton map[string]string }

// AddKnown takes in the name of an admitted tool.
func (n *Namesakes) AddKnown(t Admitted) { n.add(t.Spec.Name, t.skeletons) }

// Add takes in a name.
func (n *Namesakes) Add(name string) { n.add(name, legible.Skeletons(name)) }

func (n *Namesakes) add(name string, skeletons []string) {
	if n.bySkeleton == nil {
		n.bySkeleton = make(map[string]string)
	}
	for _, s := range skeletons {
		if _, known := n.bySkeleton[s]; !known {
			n.bySkeleton[s] = name
		}
	}
}

// Of returns the name that a reader may take another name for, empty if there is none. No name is one of itself.
func (n *Namesakes) Of(name string) string {
	if n == nil || len(n.bySkeleton) == 0 {
		return ""
	}
	return n.of(name, legible.Skeletons(name))
}

// of is Of for a name with these skeletons.
func (n *Namesakes) of(name string, skeletons []string) string {
	if n == nil {
		return ""
	}
	for _, s := range skeletons {
		if known := n.bySkeleton[s]; known != "" && known != name {
			return known
		}
	}
	return ""
}
