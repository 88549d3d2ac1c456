package docker

import (
	"context"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/farhand/farhand/agent/sandbox"
)

// image is what containers are made of.
type image struct {
	id    string   // so that what was looked at is what runs
	unset []string // names of the variables that it sets
}

// image looks at the image, and pulls it if it is not there and may be pulled.
func (e *Engine) image(ctx context.Context) (image, error) {
	img, err := findImage(ctx, e.api, e.cfg.Image)
	if !isMissing(err) || !e.cfg.Pull {
		return img, err
	}
	pull, err := e.api.ImagePull(ctx, e.cfg.Image, client.ImagePullOptions{})
	if err != nil {
		return image{}, unavailable("pull the image "+e.cfg.Image, err)
	}
	defer pull.Close()
	if err := pull.Wait(ctx); err != nil {
		return image{}, unavailable("pull the image "+e.cfg.Image, err)
	}
	return findImage(ctx, e.api, e.cfg.Image)
}

// isMissing reports whether the engine does not have the image.
func isMissing(err error) bool { return errdefs.IsNotFound(err) }

// findImage returns the image of that name if containers may be made of it.
func findImage(ctx context.Context, api *client.Client, name string) (image, error) {
	found, err := api.ImageInspect(ctx, name)
	if errdefs.IsNotFound(err) {
		return image{}, fmt.Errorf("%w: the image %q is not there; pull it with `docker pull %s`, or build one of "+
			"that name: %w", sandbox.ErrUnavailable, name, name, err)
	}
	if err != nil {
		return image{}, unavailable("look at the image "+name, err)
	}
	img := image{id: found.ID, unset: []string{"HOSTNAME", "PATH"}}
	if found.Config == nil {
		return img, nil
	}
	if len(found.Config.Volumes) > 0 {
		return image{}, fmt.Errorf("%w: the image %q declares volumes, which programs could fill without a bound; "+
			"build it without VOLUME", sandbox.ErrUnavailable, name)
	}
	for _, v := range found.Config.Env {
		key, _, _ := strings.Cut(v, "=")
		img.unset = append(img.unset, key)
	}
	return img, nil
}
