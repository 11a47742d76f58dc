import ReplayLog
import StreamRuntime
import StreamServer
import Systemd

/// Reports the connection to the fleet's brokers to the journal and to the server.
struct FleetConnectionNotes {
  private let server: StreamServer
  private let journal: Journal
  private let startedAt: UInt64
  private var notes = FailureNotes()
  private var hasConnected = false
  /// Whether the journal has an entry that the daemon waits for the first connection.
  private var isAwaited = false
  /// Whether the first connection has taken too long.
  private var hasWaited = false
  /// The present time without a connection; nil: there is one.
  private(set) var outage: FleetStatus.Outage?

  /// How long the first connection may take before the journal gets a warning.
  private static let firstConnectionTime: UInt64 = 10_000_000_000

  /// - Parameter startedAt: on the monotonic clock.
  init(_ server: StreamServer, _ journal: Journal, since startedAt: UInt64) {
    (self.server, self.journal, self.startedAt) = (server, journal, startedAt)
    setDisconnected("not connected yet")
  }

  private mutating func setDisconnected(_ reason: String) {
    server.fleetConnection = .disconnected(reason)
    outage = FleetStatus.Outage(since: outage?.since ?? EventLoop.wallClock(), reason: reason)
  }

  mutating func connected() {
    server.fleetConnection = .connected
    outage = nil
    if let note = notes.recovered(at: EventLoop.monotonicTime) {
      write(note)
    } else if !hasConnected {
      journal.write(.fleetConnected, .info, "connected to the fleet's brokers")
    }
    hasConnected = true
  }

  mutating func disconnected(_ reason: String) {
    setDisconnected(reason)
    // Brokers that start at the same time as this host are not ready at once.
    if hasConnected || hasWaited {
      noteTime()
      write(notes.failed(reason, at: EventLoop.monotonicTime), reason)
    } else if !isAwaited {
      journal.write(.fleetDisconnected, .info, "waiting for the fleet's brokers: \(reason)")
      isAwaited = true
    }
  }

  /// Time has passed.
  mutating func noteTime() {
    let time = EventLoop.monotonicTime
    if let note = notes.passed(at: time) { write(note) }
    if !hasConnected, !hasWaited, EventLoop.monotonicNow() - startedAt >= Self.firstConnectionTime,
      case .disconnected(let reason) = server.fleetConnection
    {
      hasWaited = true
      write(notes.failed(reason, at: time), reason)
    }
  }

  private func write(_ note: FailureNotes.Note, _ reason: String = "") {
    switch note {
    case .began: journal.write(.fleetDisconnected, .warning, "no connection to the fleet's brokers: \(reason)")
    case .repeated: journal.write(.fleetDisconnected, .debug, "no connection to the fleet's brokers: \(reason)")
    case .many(let count, let last):
      journal.write(
        .fleetDisconnected, .warning,
        "no connection to the fleet's brokers, \(counted(count, "failure")) in the last minute: \(last)")
    case .ended: journal.write(.fleetConnected, .notice, "connected to the fleet's brokers again")
    }
  }
}
