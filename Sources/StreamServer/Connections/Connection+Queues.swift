import Reactive

// The subscriptions of a connection that wait, beside those in its user's queue.

extension Connection {
  /// Queues the subscription for a place in its user's queue.
  func standBy(_ subscription: StreamSubscription) {
    worker.loop.assertOnLoop()
    let extras = needExtras()
    if extras.standby == nil { extras.standby = Fifo() }
    extras.standby?.append(subscription)
  }

  /// The subscription that has waited longest; it may have ended meanwhile.
  func takeStandby() -> StreamSubscription? {
    if let next = extras?.standby?.popFirst() { return next }
    extras?.standby = nil
    return nil
  }

  /// Queues the subscription for space in the socket.
  func block(_ subscription: StreamSubscription) {
    worker.loop.assertOnLoop()
    let extras = needExtras()
    // A client that requests, cancels and does not read leaves many ended subscriptions.
    if extras.blocked.count > 64 + 2 * requestCount { extras.blocked.removeAll { $0.phase != .blocked } }
    extras.blocked.append(subscription)
  }

  func unblock() {
    let unblocked = extras?.blocked ?? []
    extras?.blocked = []
    for subscription in unblocked {
      worker.perform(subscription.machine.socketIsWritable(), subscription)
      if subscription.machine.format.isBody { subscription.lane.raiseRequest(for: subscription) }
    }
  }
}
