# Prints where this computer is, as JSON.
Add-Type -AssemblyName System.Device
$watcher = New-Object Device.Location.GeoCoordinateWatcher ([Device.Location.GeoPositionAccuracy]::High)
[void]$watcher.TryStart($true, [TimeSpan]::FromSeconds(25))
while ($watcher.Position.Location.IsUnknown) {
    if ($watcher.Permission -eq 'Denied') { throw 'Windows does not allow programs to read the location' }
    Start-Sleep -Milliseconds 200
}
$at = $watcher.Position.Location
@{ latitude = $at.Latitude; longitude = $at.Longitude; accuracy = $at.HorizontalAccuracy } | ConvertTo-Json -Compress
