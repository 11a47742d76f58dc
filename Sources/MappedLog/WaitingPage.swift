import Glibc
import StreamRuntime
import Synchronization

/// The page on which the readers of one user note that they wait for one stream. Without a page each batch costs a
/// system call. Readers can write anything into it.
@safe package final class WaitingPage: @unchecked Sendable {  // an atomic word
  private let memory: SealedMemory
  private let waiting: UnsafeMutablePointer<Atomic<UInt32>>

  /// - Parameter name: the stream's name.
  package init(name: String) throws(SystemError) {
    memory = try SealedMemory(name: "streamd-wait:" + name, byteCount: Int(getpagesize()))
    unsafe waiting = unsafe memory.bytes.baseAddress!.assumingMemoryBound(to: Atomic<UInt32>.self)
  }

  /// The descriptor, for reading and writing; owned by the page.
  package var descriptor: CInt { memory.descriptor.raw }

  /// Whether a reader has begun to wait since the last call.
  func takeWaiting() -> Bool { unsafe waiting.pointee.exchange(0, ordering: .sequentiallyConsistent) != 0 }
}
