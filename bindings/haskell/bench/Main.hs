{-# LANGUAGE BangPatterns #-}
{-# LANGUAGE CApiFFI #-}

-- | Random reads of 4 KiB in batches of 32, by four green threads for each capability: the shape of
-- the high-level benchmark of blockio-uring, with its limits (64 and 256). The clock stops with the
-- last thread.
--
-- > bench FILE [--cached] [--workers N] [--seed N]
--
-- It prints one line of JSON, which @cringle bench batch --via haskell@ reads. The CPU times and
-- the context switches are those of the process while the clock ran.
module Main (main) where

import Control.Concurrent
import Control.Exception
import Control.Monad
import Control.Monad.Primitive (RealWorld)
import Data.Bits
import Data.Primitive.ByteArray
import qualified Data.Vector as V
import qualified Data.Vector.Unboxed as U
import Data.Int (Int64)
import Data.Word (Word64, Word8)
import Foreign.C.Error (throwErrnoIfMinus1, throwErrnoPathIfMinus1)
import Foreign.C.String (CString, withCString)
import Foreign.C.Types (CInt (..))
import Foreign.Marshal.Array (allocaArray, peekArray)
import Foreign.Ptr (Ptr, castPtr)
import GHC.Clock (getMonotonicTimeNSec)
import GHC.Stats (allocated_bytes, getRTSStats, getRTSStatsEnabled)
import System.Environment
import System.Exit
import System.IO.BlockIO
import System.Mem (performMajorGC)
import System.Posix.Files (fileSize, getFdStatus)
import System.Posix.IO (closeFd)
import System.Posix.Types (Fd (..))

foreign import capi "fcntl.h open" c_open :: CString -> CInt -> IO CInt

foreign import capi "sys/resource.h getrusage" c_getrusage :: CInt -> Ptr () -> IO CInt

foreign import capi "sys/resource.h value RUSAGE_SELF" rusageSelf :: CInt

foreign import capi "fcntl.h value O_RDONLY" oRdonly :: CInt

foreign import capi "fcntl.h value O_DIRECT" oDirect :: CInt

foreign import capi "fcntl.h value O_CLOEXEC" oCloexec :: CInt

data Options = Options {path :: FilePath, cached :: Bool, workers :: Int, seed :: Word64}

blockBytes, batchOps, tasksPerCapability :: Int
blockBytes = 4096
batchOps = 32
tasksPerCapability = 4

main :: IO ()
main = do
  options <- getArgs >>= parse (Options "" False 1 1)
  setNumCapabilities (workers options)
  bracket (open options) closeFd (measure options)

parse :: Options -> [String] -> IO Options
parse options arguments = case arguments of
  "--cached" : rest -> parse options {cached = True} rest
  "--workers" : n : rest | [(value, "")] <- reads n, value > 0 -> parse options {workers = value} rest
  "--seed" : n : rest | [(value, "")] <- reads n -> parse options {seed = value} rest
  file : rest | take 2 file /= "--", null (path options) -> parse options {path = file} rest
  [] | not (null (path options)) -> pure options
  _ -> die "usage: bench FILE [--cached] [--workers N] [--seed N]"

open :: Options -> IO Fd
open options = withCString (path options) $ \name ->
  Fd <$> throwErrnoPathIfMinus1 "open" (path options) (c_open name flags)
  where
    flags = oRdonly .|. oCloexec .|. (if cached options then 0 else oDirect)

measure :: Options -> Fd -> IO ()
measure options fd = do
  size <- fileSize <$> getFdStatus fd
  let blocks = fromIntegral size `quot` blockBytes
      tasks = tasksPerCapability * workers options
      batches = (blocks - 1) `quot` (tasks * batchOps)
  when (batches < 1) $ die (path options ++ ": too small")
  withIOCtx IOCtxParams {ioctxBatchSizeLimit = 64, ioctxConcurrencyLimit = 256, ioctxIOWaitMetrics = True} $
    \io -> do
      driver <- ioctxDriver io
      begin <- newEmptyMVar
      ends <- forM [0 .. tasks - 1] $ \task -> do
        end <- newEmptyMVar
        buffer <- newAlignedPinnedByteArray (batchOps * blockBytes) blockBytes
        setByteArray buffer 0 (batchOps * blockBytes) (1 :: Word8)
        void $ forkOn task $ do
          readMVar begin
          outcome <- try (reader io fd buffer blocks batches (start options task))
          putMVar end (outcome :: Either SomeException ())
        pure end
      performMajorGC
      before <- allocated
      (user, system, switches) <- usage
      started <- getMonotonicTimeNSec
      putMVar begin ()
      forM_ ends (takeMVar >=> either throwIO pure)
      ended <- getMonotonicTimeNSec
      (user', system', switches') <- usage
      after <- allocated
      let ops = batches * batchOps * tasks
          seconds = fromIntegral (ended - started) / 1e9 :: Double
      putStrLn $ concat
        [ "{\"ops\": ", show ops, ", \"seconds\": ", show seconds
        , ", \"iops\": ", show (fromIntegral ops / seconds)
        , ", \"user_seconds\": ", show (user' - user), ", \"system_seconds\": ", show (system' - system)
        , ", \"context_switches\": ", show (switches' - switches)
        , ", \"allocated_bytes\": ", show (after - before)
        , ", \"driver\": ", show driver, "}" ]
  where
    start o task = (seed o `xor` (fromIntegral (task + 1) `shiftL` 32)) * 0x9e3779b97f4a7c15

-- | The user and system seconds of the process, and its context switches. @struct rusage@ is two
-- @struct timeval@ and 14 @long@; on 64-bit Linux all fields are @long@.
usage :: IO (Double, Double, Int64)
usage = allocaArray 18 $ \fields -> do
  void $ throwErrnoIfMinus1 "getrusage" (c_getrusage rusageSelf (castPtr fields))
  numbers <- peekArray 18 fields :: IO [Int64]
  let seconds at = fromIntegral (numbers !! at) + fromIntegral (numbers !! (at + 1)) / 1e6
  pure (seconds 0, seconds 2, numbers !! 16 + numbers !! 17)

-- | The bytes allocated so far; 0 without @+RTS -T@.
allocated :: IO Word64
allocated = do
  performMajorGC
  enabled <- getRTSStatsEnabled
  if enabled then allocated_bytes <$> getRTSStats else pure 0

-- | Reads batches of uniformly random blocks, each into its own part of the buffer.
reader :: IOCtx -> Fd -> MutableByteArray RealWorld -> Int -> Int -> Word64 -> IO ()
reader io fd buffer blocks = go
  where
    go 0 !_ = pure ()
    go n state = do
      results <- submitIO io (V.unfoldrExactN batchOps next (0, state))
      unless (U.all (== IOResult (fromIntegral blockBytes)) results) $
        die ("a read failed or was short: " ++ show results)
      go (n - 1) (state + fromIntegral batchOps * increment)
    next (!index, !state) = (operation, (index + 1, state + increment))
      where
        block = fromIntegral (mix state `rem` fromIntegral blocks) :: Int
        operation =
          IOOpRead fd (fromIntegral (block * blockBytes)) buffer (index * blockBytes) (fromIntegral blockBytes)
    increment = 0x9e3779b97f4a7c15

-- | The output function of splitmix64.
mix :: Word64 -> Word64
mix z0 = z2 `xor` (z2 `unsafeShiftR` 31)
  where
    z1 = (z0 `xor` (z0 `unsafeShiftR` 30)) * 0xbf58476d1ce4e5b9
    z2 = (z1 `xor` (z1 `unsafeShiftR` 27)) * 0x94d049bb133111eb
