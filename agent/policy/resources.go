package policy

import "context"

type resourcesKey struct{}

// Value makes a context of resources that has them as its only value, for ResourcesOf.
func (r Resources) Value(key any) any {
	if key == (resourcesKey{}) {
		return r
	}
	return nil
}

// ResourcesOf returns what a call of a local tool may use. ctx is that of its Execute.
func ResourcesOf(ctx context.Context) Resources {
	r, _ := ctx.Value(resourcesKey{}).(Resources)
	return r
}
