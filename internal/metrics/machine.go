package metrics

// folders are the folders whose disks are watched.
var folders = []string{FolderData, FolderBlobs, FolderWorkspaces}

// The folders.
const (
	FolderData       = "data"
	FolderBlobs      = "blobs"
	FolderWorkspaces = "workspaces"
)

// Disk has the bytes of the disk of a folder, which is one of the constants above.
type Disk struct {
	Folder     string
	Free, Size int64
}

func disks(all []Disk) []current {
	var free, size []series
	for _, d := range all {
		free = append(free, series{float64(d.Free), []string{d.Folder}})
		size = append(size, series{float64(d.Size), []string{d.Folder}})
	}
	folder := Label{Name: "folder", Values: folders}
	return []current{
		gauge("farhand_disk_free_bytes", "Free bytes of the disk of each local folder: the state file's "+
			"(FARHAND_DATA_DIR), that of stored files (FARHAND_BLOB_URL) and of workspaces (FARHAND_WORKSPACE_DIR).",
			labeled(free, folder)),
		gauge("farhand_disk_size_bytes", "Size of the same disks.", labeled(size, folder)),
	}
}

func drain(used float64) []current {
	return []current{gauge("farhand_drain_used_ratio",
		"Used part of FARHAND_DRAIN_TIMEOUT since the pod began to stop; 0 before. At 0.8 it ends what is in flight.",
		labeled([]series{{n: used}}))}
}

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
