import Glibc
import StreamRuntime
import Synchronization

/// The page on which the readers of one user note that they wait for one stream: without it each batch would cost a
/// system call. Readers can write anything into it.
@safe package final class WaitingPage: @unchecked Sendable {  // an atomic word
  private let memory: SealedMemory
  private let waiting: UnsafeMutablePointer<Atomic<UInt32>>

  /// - Parameter name: the stream's.
  package init(name: String) throws(SystemError) {
    memory = try SealedMemory(name: "streamd-wait:" + name, byteCount: sysconf(CInt(_SC_PAGESIZE)))
    unsafe waiting = unsafe memory.bytes.baseAddress!.assumingMemoryBound(to: Atomic<UInt32>.self)
  }

  /// For reading and writing; owned by the page.
  package var descriptor: CInt { memory.descriptor.raw }

  /// Whether a reader waits, since the last call.
  func takeWaiting() -> Bool { unsafe waiting.pointee.exchange(0, ordering: .sequentiallyConsistent) != 0 }
}
