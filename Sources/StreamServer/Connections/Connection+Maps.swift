import CLinux
import Glibc
import MappedLog
import RSocket

/// A reply that is not sent yet, with the descriptors that its first byte brings.
struct UnsentMap {
  let request: RequestID
  let region: MapRegion
  let page: WaitingPage?
  /// Bytes of the connection before it, as `sentByteCount` counts them.
  var offset: UInt64
  let byteCount: Int
}

// Replies with descriptors. They are among the unsent bytes, like all replies, and nothing else is written before these.

extension Connection {
  /// Sends a reply that has the descriptors of a region and a page.
  /// - Parameter send: adds it to the answers.
  func attach(_ region: MapRegion, _ page: WaitingPage?, to request: RequestID, _ send: () -> Void) {
    worker.loop.assertOnLoop()
    let (offset, former) = (sentByteCount + UInt64(unsentByteCount), answerByteCount)
    send()
    guard answerByteCount > former else { return worker.accounts.maps.noteWithdrawn(by: identity.number) }
    unsentMaps.append(
      UnsentMap(
        request: request, region: region, page: page, offset: offset, byteCount: answerByteCount - former))
  }

  private var unsentMaps: [UnsentMap] {
    get { extras?.unsentMaps ?? [] }
    set { needExtras().unsentMaps = newValue }
  }

  /// Writes unsent bytes: up to the next reply with descriptors, or that reply, as those arrive with its first byte.
  /// - Returns: whether all of these bytes were written; nil if the connection, or its reader, is gone.
  func writeUnsent() -> Bool? {
    let map = unsentMaps.first
    let before = map.map { Int(clamping: $0.offset - sentByteCount) } ?? unsent.count
    let count = before == 0 ? map?.byteCount ?? 0 : min(before, unsent.count)
    let result = unsafe unsent.withUnsafeBytes { bytes in
      let part = unsafe UnsafeRawBufferPointer(rebasing: bytes.prefix(count))
      return if before == 0, let map { unsafe send(map, part) } else { unsafe write(part) }
    }
    switch result {
    case .gone: return nil
    case .wrote(let written):
      unsent.removeFirst(written)
      return written == count
    case nil:
      withdrawMap(.init(.noDescriptors, "the system does not pass descriptors at present"))
      return true
    }
  }

  /// Sends the reply with descriptors that is the next of the unsent bytes.
  /// - Returns: nil: they cannot be sent.
  private func send(_ map: UnsentMap, _ bytes: UnsafeRawBufferPointer) -> WriteResult? {
    let descriptors = [map.region.descriptor] + (map.page.map { [$0.descriptor] } ?? [])
    let count = unsafe send_with_descriptors(
      socket.raw, bytes.baseAddress, bytes.count, descriptors, CInt(descriptors.count), 0)
    // The kernel's limit of descriptors on their way, or a policy of the system.
    if count < 0, ![EAGAIN, EINTR, ENOBUFS, EPIPE, ECONNRESET].contains(errno) { return nil }
    let result = noteWritten(count)
    if count > 0 {
      unsentMaps.removeFirst()
      worker.accounts.maps.noteSent(by: identity.number, at: map.offset)
    }
    return result
  }

  /// Replaces a reply whose descriptors cannot be sent by an error.
  private func withdrawMap(_ failure: RequestFailure) {
    let map = unsentMaps.removeFirst()
    worker.accounts.maps.noteWithdrawn(by: identity.number)
    let error = speaker?.encoded(failure, of: map.request) ?? []
    unsent.replace(map.byteCount, at: Int(clamping: map.offset - sentByteCount), by: error)
    let change = error.count - map.byteCount
    for index in unsentMaps.indices {
      unsentMaps[index].offset = UInt64(Int64(unsentMaps[index].offset) + Int64(change))
    }
  }

  /// Another process does not have the descriptors.
  func withdrawMaps(_ failure: RequestFailure) {
    while !unsentMaps.isEmpty { withdrawMap(failure) }
  }
  /// The client reads nothing any more.
  func dropMaps() {
    guard !unsentMaps.isEmpty else { return }
    for _ in unsentMaps { worker.accounts.maps.noteWithdrawn(by: identity.number) }
    unsentMaps = []
  }
}
