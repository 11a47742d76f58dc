/// How long the source of a stream waits before its next request, from some time on. In microseconds.
package struct FleetSchedule: Equatable, Sendable {
  /// Until the next slot of a poll; 0: unknown.
  package var slot: UInt64
  /// Until the end of the time for which the server has asked for no request; 0: it has not.
  package var rest: UInt64

  package init(slot: UInt64 = 0, rest: UInt64 = 0) { (self.slot, self.rest) = (slot, rest) }

  /// The schedule as it is after some time.
  func after(_ microseconds: UInt64) -> FleetSchedule {
    FleetSchedule(slot: slot - min(slot, microseconds), rest: rest - min(rest, microseconds))
  }
}
