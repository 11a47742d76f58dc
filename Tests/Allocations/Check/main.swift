import Glibc

// Counts the allocations of values and subscriptions, and fails if there are more than allowed. To be built for
// release: a debug build allocates where the optimiser does not. Run by deploy/test.

checkStages()
checkFolds()
checkJunctions()
checkSharing()
checkSequence()
checkSubscriptions()
checkEndInsideAValue()
checkSharedSequences()
print(failures == 0 ? "no value costs an allocation" : "\(failures) over the limit")
exit(failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE)
