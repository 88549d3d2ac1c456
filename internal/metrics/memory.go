package metrics

func memory(limit int64) []current {
	var all []series
	if limit > 0 {
		all = append(all, series{n: float64(limit)})
	}
	return []current{gauge("farhand_memory_limit_bytes",
		"Memory that the process may use: the least of GOMEMLIMIT, the limits of its cgroups and the machine's memory. "+
			"There is no series if none is known.",
		labeled(all))}
}
