/// The time that the source of a stream waits before its next request, from a reference time on; microseconds.
package struct FleetSchedule: Equatable, Sendable {
  /// The time until the next slot of a poll; 0: unknown.
  package var slot: UInt64
  /// The time until the end of the upstream's Retry-After; 0: there is none.
  package var rest: UInt64

  package init(slot: UInt64 = 0, rest: UInt64 = 0) { (self.slot, self.rest) = (slot, rest) }

  /// The schedule as it is after some time.
  func after(_ microseconds: UInt64) -> FleetSchedule {
    FleetSchedule(slot: slot - min(slot, microseconds), rest: rest - min(rest, microseconds))
  }
}
