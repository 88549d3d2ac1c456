package redisstore

import (
	"context"

	"github.com/farhand/farhand/redisstore/internal/redisconn"
	"github.com/farhand/farhand/registry"
)

// Codes in the first element of the answer of scriptPlaceClaim.
const (
	placeErased  = -1
	placeUnknown = 0
)

// ClaimPlace implements registry.PlaceStore. Redis cannot check the place and the leases of pods in one step. So if the
// owner of a place is dead, the place is claimed again, with the epoch of that owner.
func (s *Store) ClaimPlace(ctx context.Context, c registry.PlaceClaim) (registry.Place, error) {
	place, known, err := s.claimPlace(ctx, c, 0, false)
	if err != nil {
		return registry.Place{}, err
	}
	if !known {
		if err := s.Whole(ctx); err != nil {
			return registry.Place{}, err
		}
		if place, _, err = s.claimPlace(ctx, c, 0, true); err != nil {
			return registry.Place{}, err
		}
	}
	if place.Pod == c.Pod {
		return place, nil
	}
	live, err := s.live.has(ctx, []string{place.Pod})
	if err != nil || live[place.Pod] {
		return place, redisconn.Unavailable("claim place", err)
	}
	place, _, err = s.claimPlace(ctx, c, place.Epoch, true)
	return place, err
}

// claimPlace claims a place, unless an owner has it whose epoch is not dead.
func (s *Store) claimPlace(
	ctx context.Context, c registry.PlaceClaim, dead int64, create bool,
) (place registry.Place, known bool, err error) {
	_, conversation := c.Key.Conversation()
	answer, err := s.conn.Eval(ctx, scriptPlaceClaim, []string{placeKey(c.Key)}, s.placeTTL, c.Pod, c.Kind,
		decimal(c.Fence), flag(conversation), decimal(dead), flag(create), flag(c.Keep))
	if err != nil {
		return registry.Place{}, false, redisconn.Unavailable("claim place", err)
	}
	list := answer.List()
	switch {
	case len(list) == 1 && redisconn.Int(list[0]) == placeErased:
		return registry.Place{}, true, registry.ErrErased
	case len(list) == 1 && redisconn.Int(list[0]) == placeUnknown:
		return registry.Place{}, false, nil
	case len(list) != 6:
		return registry.Place{}, false, redisconn.Unavailable("claim place", answer.ErrShape())
	}
	pod, _ := list[2].(string)
	return registry.Place{
		Key: c.Key, Generation: redisconn.Int(list[1]), Pod: pod, Epoch: redisconn.Int(list[3]),
		Before: redisconn.Int(list[4]), Kept: redisconn.Int(list[5]) == 1,
	}, true, nil
}

// RefreshPlaces implements registry.PlaceStore.
func (s *Store) RefreshPlaces(ctx context.Context, places []registry.Place) (gone []registry.Place, err error) {
	pipe := s.conn.Pipeline()
	kept := make([]*redisconn.Command, len(places))
	for i, p := range places {
		kept[i] = pipe.Eval(scriptPlaceRefresh, []string{placeKey(p.Key)}, s.placeTTL, p.Pod,
			decimal(p.Generation), decimal(p.Epoch))
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, redisconn.Unavailable("refresh places", err)
	}
	for i, p := range places {
		if kept[i].Int() == 0 {
			gone = append(gone, p)
		}
	}
	return gone, nil
}

// ReleasePlaces implements registry.PlaceStore.
func (s *Store) ReleasePlaces(ctx context.Context, places []registry.Place) error {
	pipe := s.conn.Pipeline()
	for _, p := range places {
		pipe.Eval(scriptPlaceRelease, []string{placeKey(p.Key)}, p.Pod, decimal(p.Epoch))
	}
	return redisconn.Unavailable("release places", pipe.Exec(ctx))
}

// PlaceGenerations implements registry.PlaceStore.
func (s *Store) PlaceGenerations(ctx context.Context, keys []registry.Key) ([]int64, error) {
	pipe := s.conn.Pipeline()
	answers := make([]*redisconn.Command, len(keys))
	for i, key := range keys {
		place := registry.PlaceKey{Tenant: key.Tenant, Session: key.Session}
		answers[i] = pipe.Do("HGET", placeKey(place), "generation")
	}
	if err := pipe.Exec(ctx); err != nil {
		return nil, redisconn.Unavailable("read generations", err)
	}
	generations := make([]int64, len(keys))
	for i, answer := range answers {
		if text, ok := answer.Text(); ok {
			generations[i] = redisconn.Int(text)
		}
	}
	return generations, nil
}
