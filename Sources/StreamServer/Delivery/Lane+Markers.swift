import StreamRuntime

// Markers show members that they are current. A member gets one when it has been sent all events for the first time,
// and whenever it has been sent nothing for `markerInterval`. A member without demand gets none.

extension Lane {
  /// The time between two searches for members to which a marker is due.
  private var checkInterval: Duration { worker.limits.markerInterval / 10 }

  /// Begins to look for members to which a marker is due, unless the lane does so already.
  func watchForMarkers() {
    worker.loop.assertOnLoop()
    guard markerTimer == nil, !worker.isPaused else { return }
    markerTimer = worker.loop.schedule(after: checkInterval) { [self] in
      markerTimer = nil
      sendDueMarkers()
      if members.contains(where: \.hasMarkers) { watchForMarkers() }
    }
  }

  func stopWatchingForMarkers() {
    if let markerTimer { worker.loop.cancel(markerTimer) }
    markerTimer = nil
  }

  private func sendDueMarkers() {
    let (now, interval) = (worker.loop.now, worker.limits.markerInterval)
    for member in members
    where member.phase == .waiting && member.hasMarkers && member.machine.isMarkerDue(at: now, after: interval) {
      stopWaiting(member)
      worker.perform(member.machine.logGrew(), member)
    }
  }
}
